"""The audit: an independent recount of the log, compared with what is served, cell by cell.

It reads deliveries as plain bytes and judges and folds them with naive code of its own. It shares the views'
declarations and the paragraph that defines an event, and nothing else, with what it audits.
"""
