use super::*;
use crate::hash::{NameHash, fnv1a64};
use crate::image::Size;

/// The image of `golden/export/augment.py`.
pub(in crate::transforms) fn picture() -> Image {
    let (size, hash) = (Size::new(160, 96), NameHash::new("augment"));
    let pixels = (0..3 * size.area() as u64).map(|i| (hash.h(i) % 200 + 20) as u8).collect();
    Image::new(size, pixels).unwrap()
}

/// FNV-1a hashes of the pixels of Pillow 13 and torchvision 0.29, printed by `golden/export/augment.py`.
#[test]
fn colours_are_pillows_to_the_bit() {
    let turn = |share: f64| Adjust::Hue((share * 255.0) as i32 as u8);
    for (adjust, theirs) in [
        (Adjust::Brightness(0.3), 0xd852_ef49_330a_9bbc_u64),
        (Adjust::Brightness(1.7), 0xedce_1ea6_e831_4c03),
        (Adjust::Contrast(0.3), 0xd099_2e65_fc64_948c),
        (Adjust::Contrast(1.7), 0x20c3_261e_6dde_30a2),
        (Adjust::Saturation(0.3), 0xbf35_7aac_995e_09e7),
        (Adjust::Saturation(1.7), 0x78e1_23e0_fa84_7536),
        (Adjust::Sharpness(0.3), 0xcc3f_5445_8c55_b201),
        (Adjust::Sharpness(1.7), 0xdde8_738b_493f_ca37),
        (turn(-0.5), 0xb75d_29c3_c5b9_cf05),
        (turn(-0.1), 0xf56e_780f_7aba_cf9c),
        (turn(0.0), 0x6c00_3117_736d_d3ce),
        (turn(0.2), 0x0265_354a_35ca_9935),
        (Adjust::Posterize(1), 0xe4c3_b972_7a92_e6a5),
        (Adjust::Posterize(4), 0x2bd8_a2c8_37ea_7c35),
        (Adjust::Posterize(8), 0x9795_0010_a5df_3553),
        (Adjust::Solarize(0.0), 0x56e5_8f2c_32aa_50f7),
        (Adjust::Solarize(128.5), 0x33df_fefa_1520_fb08),
        (Adjust::Solarize(255.0), 0x9795_0010_a5df_3553),
        (Adjust::AutoContrast, 0x7508_5b75_bae0_be41),
        (Adjust::Equalize, 0x3c34_4918_f94e_a70e),
    ] {
        assert_eq!(fnv1a64(adjust.run(picture()).pixels()), theirs, "{adjust:?}");
    }
}

/// An image with a single level has no contrast to stretch and no histogram to equalise.
#[test]
fn flat_images_stay_flat() {
    let flat = Image::filled(Size::new(3, 2), [7, 7, 7]);
    for adjust in [Adjust::AutoContrast, Adjust::Equalize, Adjust::Sharpness(1.9), Adjust::Contrast(0.0)] {
        assert_eq!(adjust.run(flat.clone()), flat, "{adjust:?}");
    }
    let pixel = Image::filled(Size::new(1, 1), [200, 3, 90]);
    assert_eq!(Adjust::Sharpness(0.1).run(pixel.clone()), pixel);
}
