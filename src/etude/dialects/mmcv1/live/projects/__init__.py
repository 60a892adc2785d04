"""What training configs of MMClassification 0.x and MMTracking 0.x need where these are not installed."""
