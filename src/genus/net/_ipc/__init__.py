"""`ipc:`: the transport between processes of one user, over stream sockets in a folder."""
