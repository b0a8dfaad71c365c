"""Tables of a lake at rest: files, ledger, store, columns, catalog and compaction."""
