"""HTTP to the farm: links, retries, pages, files."""
