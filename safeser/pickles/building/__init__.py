"""Build objects from judged programs."""
