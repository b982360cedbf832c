"""What people see: tables in the terminal, figures, and a page that opens offline. Draws and writes only."""
