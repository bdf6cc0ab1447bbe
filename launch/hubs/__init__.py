"""Model hubs: what a repository holds, and its files on this disk, each hub by its own client."""
