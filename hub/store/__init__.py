"""The store as the hub sees it: its ports, the ledger that decides commits, memory stores."""
