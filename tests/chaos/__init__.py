"""Breaking everything at seeded random points while jobs recover, and an oracle that reads only what is on record."""
