#!/bin/sh
# Sends alerts of `service health` as mail in words of your own, by SMTP to a relay, with curl; `set service health alert NAME mail` does that by itself. (A sendmail that is setuid or setgid does not work: programs
# of alerts gain no rights.) Set the three names, then:
#   install -D -o root -m 0755 health-alert.sh /config/scripts/health-alert.sh
#   set service health alert mail exec /config/scripts/health-alert.sh
# docs/health.md has all variables; the alerts are on the standard input as JSON, too.
relay=smtp://mail.example.net:25
from=postern@example.net
to=operator@example.net

{
    printf 'From: %s\nTo: %s\nSubject: [%s] %s on %s\n\n' "$from" "$to" "$POSTERN_STATUS" "$POSTERN_RULE" "$(uname -n)"
    printf '%s\n' "$POSTERN_TEXT"
    [ "$POSTERN_STATUS" = resolved ] || printf 'fix: %s\n' "$POSTERN_REMEDY"
} | curl --silent --show-error --max-time 25 --ssl --mail-from "$from" --mail-rcpt "$to" --upload-file - "$relay"
