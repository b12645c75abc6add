//! The text of `help`.

pub(super) const HELP: &str = "Commands of the management interface of Postern, as OpenVPN 2.6 defines them:
auth-retry [none|nointeract|interact] : what follows a refused password
bytecount SECONDS      : report byte counts in this interval; 0 for never
client-auth CID KID    : accept a client; its settings follow, up to END
client-auth-nt CID KID : accept a client
client-deny CID KID REASON [REASON-FOR-CLIENT] : refuse a client
client-kill CID [MESSAGE] : end a client, which is told RESTART or MESSAGE
client-pending-auth CID KID TEXT SECONDS : tell a client that its user is needed
cr-response TEXT       : answer a challenge of the server
echo [on|off] [N|all]  : show texts of echo, as log does
exit|quit              : close this connection
forget-passwords       : forget the passwords that were entered
help                   : show this text
hold [on|off|release]  : show or set the flag of hold, or go on
kill NAME|[PROTOCOL:]IP:PORT : end clients with a common name, or at an address
load-stats             : show the number of clients and the bytes of all
log [on|off] [N|all]   : show lines of the log, now and as they are written
mute [N]               : show or set the number of equal lines in a row
password TYPE PASSWORD : answer a question for a password
pid                    : show the process id
remote ACCEPT|SKIP [N]|MOD HOST PORT : answer the question for the next server
remote-entry-count     : show the number of servers
remote-entry-get N [M]|all : show servers N to M-1
signal NAME            : act as at SIGHUP, SIGTERM, SIGUSR1 or SIGUSR2
state [on|off] [N|all] : show states, as log does
status [1|2|3]         : show the status in this format
test N                 : print N lines
username TYPE NAME     : answer a question for a user name
verb [N]               : show or set the level of the log
version [N]            : show the versions, or tell that of this client
END
";
