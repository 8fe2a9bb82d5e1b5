"""Why an attempt failed and whose fault it was: from log lines, metric samples and job facts to one Verdict."""
