"""Token-exact conversations: prompts as ids that extend what was sampled, and the account of every token."""
