"""The formats, one file each: they draw documents, or write records, content or metrics."""
