//! A mixture of several sets of videos.

use std::sync::Arc;

use super::{VideoDataset, VideoFrame};
use crate::DataError;

/// Videos of several sets, each used as often as is said, as SiamMask mixes COCO, ImageNet DET and VID, and
/// YouTube-VOS.
#[derive(Clone)]
pub struct VideoMixture {
    parts: Vec<Part>,
}

#[derive(Clone)]
struct Part {
    videos: Arc<dyn VideoDataset>,
    /// Numbers of its videos in the mixture: from the end of the part before up to, but without, this.
    end: usize,
}

impl VideoMixture {
    /// Each set with the number of videos to use of it. Of a set with fewer videos some or all occur several times, of
    /// one with more the first are used.
    ///
    /// # Errors
    /// If a used set is empty, or if no video is used.
    pub fn new(sets: Vec<(Arc<dyn VideoDataset>, usize)>) -> Result<Self, DataError> {
        let mut parts: Vec<Part> = Vec::with_capacity(sets.len());
        for (number, (videos, uses)) in sets.into_iter().enumerate() {
            if videos.is_empty() && uses > 0 {
                return Err(DataError::Config(format!("{uses} videos of set {number}, which is empty")));
            }
            let end = parts.last().map_or(0, |part| part.end) + uses;
            parts.push(Part { videos, end });
        }
        if parts.last().is_none_or(|part| part.end == 0) {
            return Err(DataError::Config("a mixture without videos".into()));
        }
        Ok(Self { parts })
    }

    /// The set that holds video `index`, and its number there.
    fn locate(&self, index: usize) -> (&dyn VideoDataset, usize) {
        let part = self.parts.partition_point(|part| part.end <= index);
        let start = if part == 0 { 0 } else { self.parts[part - 1].end };
        let videos = &*self.parts[part].videos;
        (videos, (index - start) % videos.len())
    }
}

impl VideoDataset for VideoMixture {
    fn len(&self) -> usize {
        self.parts.last().map_or(0, |part| part.end)
    }

    fn name(&self, index: usize) -> String {
        let (videos, index) = self.locate(index);
        videos.name(index)
    }

    fn frames(&self, index: usize) -> usize {
        let (videos, index) = self.locate(index);
        videos.frames(index)
    }

    fn frame_range(&self, index: usize) -> Option<usize> {
        let (videos, index) = self.locate(index);
        videos.frame_range(index)
    }

    fn frame(&self, index: usize, frame: usize) -> Result<VideoFrame, DataError> {
        let (videos, index) = self.locate(index);
        videos.frame(index, frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracking::Videos;

    fn videos(seed: u64, len: usize) -> Arc<dyn VideoDataset> {
        Arc::new(Videos::new(&zoo_settings::Videos { seed, ..Default::default() }, 0, len).unwrap())
    }

    #[test]
    fn sets_follow_each_other_as_often_as_is_said() {
        let mixture = VideoMixture::new(vec![(videos(1, 2), 3), (videos(2, 0), 0), (videos(3, 5), 2)]).unwrap();
        let names: Vec<String> = (0..mixture.len()).map(|i| mixture.name(i)).collect();
        let expected = ["1)[0]", "1)[1]", "1)[0]", "3)[0]", "3)[1]"].map(|end| format!("videos(seed {end}"));
        assert_eq!(names, expected);
        assert_eq!(mixture.frame(4, 7).unwrap(), videos(3, 5).frame(1, 7).unwrap());
        assert_eq!(mixture.frames(0), 20);
    }

    #[test]
    fn empty_sets_are_refused() {
        assert!(VideoMixture::new(vec![(videos(1, 0), 1)]).is_err());
        assert!(VideoMixture::new(vec![(videos(1, 3), 0)]).is_err());
        assert!(VideoMixture::new(Vec::new()).is_err());
    }
}
