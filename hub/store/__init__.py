"""The store as the hub sees it: the journal's port, the rules of inboxes, and memory journals."""
