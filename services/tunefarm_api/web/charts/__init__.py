"""The dashboard's charts."""
