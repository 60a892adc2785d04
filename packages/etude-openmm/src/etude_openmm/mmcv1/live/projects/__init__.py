"""Stand-ins for MMClassification 0.x and MMTracking 0.x, for training without these projects."""
