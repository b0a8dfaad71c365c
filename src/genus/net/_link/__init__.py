"""The link of a bus on any transport: `netlink` is the whole, the other modules are its parts."""
