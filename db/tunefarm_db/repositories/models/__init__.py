"""Models, blobs and uploads."""
