//! Data sets: readers, transforms, loader, generated sets
