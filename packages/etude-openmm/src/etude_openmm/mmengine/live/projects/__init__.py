"""Classes that training configs of MMSelfSup 1.x and MMPretrain name, for use without these projects."""
