"""The bytes of files: archives, compression, ranges of files at sources."""
