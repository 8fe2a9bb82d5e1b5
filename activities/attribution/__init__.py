"""Services of the site that are asked why an attempt failed, beside relight's own attribution."""
