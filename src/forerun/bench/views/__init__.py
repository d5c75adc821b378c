"""Records for people: tables, pages and figures."""
