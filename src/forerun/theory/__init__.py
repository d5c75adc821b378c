"""What speculation is worth on paper: closed forms, memory, tables and figures. Pure arithmetic."""
