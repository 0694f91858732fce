"""Where other libraries meet `ex2`: each file imports the library it is named after, and nothing else imports it."""
