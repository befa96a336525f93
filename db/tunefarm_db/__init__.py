"""The database: tables, repositories, unit of work, migrations. Frozen values out, rows never."""
