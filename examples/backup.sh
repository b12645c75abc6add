#!/bin/bash
# Backs up this gateway into a folder, and keeps the newest backups there: backup.sh FOLDER NUMBER
# For `system task-scheduler` or cron: see docs/backup.md. The passphrase is the first line of a file that only root may read.
set -euo pipefail
folder=${1:?which folder?}
kept=${2:-14}
passphrase=${POSTERN_PASSPHRASE_FILE:-/etc/postern/backup.passphrase}

# 1 means that something is not in it, as the output says: the rest is worth keeping.
status=0
postern backup --passphrase-file "$passphrase" "$folder" || status=$?
[ "$status" -le 1 ] || exit "$status"
# Their names sort by time.
find "$folder" -maxdepth 1 -type f -name 'postern-*.backup' | sort | head -n "-$kept" | xargs -r -d '\n' rm -f --
exit "$status"
