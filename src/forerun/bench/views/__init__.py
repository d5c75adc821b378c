"""Views of records: tables, pages and figures."""
