"""Collected runs on disk: fetched, merged, saved, loaded, mirrored."""
