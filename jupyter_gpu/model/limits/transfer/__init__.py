"""Pure: import and export of limits: tables (CSV), documents (JSON), and what an import would change."""
