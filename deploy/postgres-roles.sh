#!/bin/sh
# Makes the farm's database and its roles, once, when PostgreSQL starts with an empty volume. The owner is no superuser; workers have
# a role of their own, which `tunefarm db upgrade --worker-role` gives its rights.
set -eu
psql --set=ON_ERROR_STOP=1 --no-psqlrc --username="$POSTGRES_USER" --dbname=postgres <<'SQL'
\getenv owner_password TUNEFARM_OWNER_PASSWORD
\getenv worker_password TUNEFARM_WORKER_PASSWORD
CREATE ROLE tunefarm LOGIN PASSWORD :'owner_password';
CREATE ROLE tunefarm_worker LOGIN PASSWORD :'worker_password';
CREATE DATABASE tunefarm OWNER tunefarm;
REVOKE ALL ON DATABASE tunefarm FROM PUBLIC;
GRANT CONNECT ON DATABASE tunefarm TO tunefarm_worker;
-- The other databases are the superuser's: a worker has no business there, not even with temporary tables.
REVOKE ALL ON DATABASE postgres FROM PUBLIC;
REVOKE ALL ON DATABASE template1 FROM PUBLIC;
\connect tunefarm
ALTER SCHEMA public OWNER TO tunefarm;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
SQL
