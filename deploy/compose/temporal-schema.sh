#!/bin/sh
# Makes Temporal's databases where they are missing and brings their schemas up to date. Safe to repeat.
# Needs SQL_HOST, SQL_USER and SQL_PASSWORD; the tool reads the password from its environment by itself.
set -eu

sql_tool() {
    database="$1"
    shift
    temporal-sql-tool --plugin postgres12 --ep "$SQL_HOST" --port 5432 --user "$SQL_USER" --db "$database" "$@"
}

prepare() {
    sql_tool "$1" create
    sql_tool "$1" setup-schema --version 0.0
    sql_tool "$1" update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$2/versioned"
}

prepare temporal temporal
prepare temporal_visibility visibility
