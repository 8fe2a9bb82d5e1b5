"""What all log stores have in common: the client, paging, and one reader of a store for all jobs of a process."""
