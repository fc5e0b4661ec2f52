//! Descriptions compared with the output of kubectl.
