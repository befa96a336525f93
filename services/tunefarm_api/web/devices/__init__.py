"""The dashboard's pages of devices."""
