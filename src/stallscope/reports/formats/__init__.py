"""One file per format; each draws any document, or writes any records or content."""
