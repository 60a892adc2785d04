"""What training configs of MMSelfSup 1.x and MMPretrain need where these are not installed."""
