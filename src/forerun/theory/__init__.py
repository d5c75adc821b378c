"""What speculation is worth on paper: closed forms, tables and figures. Pure arithmetic."""
