"""Converters of TFLite operators, by kind. Each module has a table of them."""
