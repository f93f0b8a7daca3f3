"""The catalogue: list and search the runs of a store quickly.

Listing ten thousand runs must not read ten thousand manifests, so each run has a row in
STORE/catalogue.sqlite. The runs' folders are authoritative: the catalogue is updated from them, and is
rebuilt from them if it is missing or damaged.
"""
