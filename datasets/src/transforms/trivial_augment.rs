//! One random operation of random magnitude.

use zoo_settings::TrivialAugment;

use super::Transform;
use super::plan::Op;
use super::rand_augment::{OPERATIONS, Ranges};
use crate::Rng;
use crate::image::Size;

/// The ranges of `torchvision.transforms.TrivialAugmentWide`.
const RANGES: Ranges = Ranges { shear: 0.99, translation: [32.0; 2], rotation: 135.0, factor: 0.99, bits: 6.0 };

impl Transform for TrivialAugment {
    fn check(&self) -> Result<(), String> {
        let bins = self.bins;
        if bins >= 2 { Ok(()) } else { Err(format!("{bins} bins of magnitudes; there must be at least 2")) }
    }

    fn plan(&self, from: Size, rng: &mut Rng) -> Vec<Op> {
        let number = rng.below(OPERATIONS);
        let magnitude = rng.below(self.bins);
        RANGES.operation(number, [magnitude, self.bins], from, rng).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::fnv1a64;
    use crate::transforms::adjust::tests::picture;
    use crate::transforms::plan::Plan;
    use std::collections::BTreeSet;

    /// FNV-1a hashes of the pixels of torchvision 0.29 for both signs, printed by `golden/export/augment.py`.
    const THEIRS: [(usize, [&[u64]; OPERATIONS]); 3] = [
        (
            4,
            [
                &[0x9795_0010_a5df_3553],
                &[0x91d9_a7cf_5611_11d8, 0x601f_d801_4f6d_8e4d],
                &[0x6e36_b45d_55df_b02b, 0x294c_cdd2_36c4_9d08],
                &[0xec90_1936_40e9_5de4, 0xc04f_1734_fd1e_8dde],
                &[0xc2dc_6ddf_99d1_c3f2, 0x2485_a47b_6477_f931],
                &[0x4c84_33ae_5627_a97c, 0x63b4_67e3_6502_c1be],
                &[0x9f74_fb66_3f81_18b2, 0xd52d_4326_98ad_d156],
                &[0xc711_1bbb_15c0_5006, 0xef5c_9e5b_2990_c6dd],
                &[0x6ef5_e70f_fe9f_b42b, 0xc995_6b99_ca55_45db],
                &[0xbf6e_5822_052d_ef6f, 0xf490_2471_0449_f055],
                &[0xbde4_0a6b_e4e9_d845],
                &[0x9795_0010_a5df_3553],
                &[0x7508_5b75_bae0_be41],
                &[0x3c34_4918_f94e_a70e],
            ],
        ),
        (
            17,
            [
                &[0x9795_0010_a5df_3553],
                &[0xc627_38f6_fddb_4361, 0x64ae_9623_3491_e4d4],
                &[0x4bee_bb05_819f_9410, 0xabaa_3154_60b1_469d],
                &[0x1fb0_79c4_549e_f964, 0xb38c_0556_4546_36bc],
                &[0xf07a_03a0_8fc0_22c8, 0x5056_70c6_0458_6d34],
                &[0x57ff_bca7_3701_1bdf, 0xa07a_fe96_eba9_5a43],
                &[0x125b_cad9_b1cd_58e4, 0x65ac_9460_de44_0c5b],
                &[0x2c3b_f6e9_946e_4ecc, 0xb37c_3ce8_6647_00b1],
                &[0xcf0a_d52b_a6bc_4d04, 0x0a5b_491e_4a32_8f51],
                &[0x54de_af8c_8a5a_bb54, 0x2345_e9ed_d4e6_9839],
                &[0xd899_4d03_62da_f8e5],
                &[0x6731_c66d_b693_43a7],
                &[0x7508_5b75_bae0_be41],
                &[0x3c34_4918_f94e_a70e],
            ],
        ),
        (
            30,
            [
                &[0x9795_0010_a5df_3553],
                &[0x89d7_4e50_8ace_6094, 0xf9c5_ff7d_4774_20fa],
                &[0x4f50_5e98_b1d2_6141, 0xa62c_02ab_f15f_af0a],
                &[0x3297_5b3f_f16f_a53d, 0x43b2_41c5_4cb6_9102],
                &[0x56e9_7930_7b83_6b04, 0x6b88_6fb9_f5a9_eae0],
                &[0x807a_98ac_5f00_bc7e, 0x3c9b_9aea_a737_db5b],
                &[0xf711_9ea3_2c94_5cbf, 0xb994_66d5_5f93_7c23],
                &[0xd93d_139f_2403_eb1b, 0x4fb7_69af_86f4_8cac],
                &[0xbf77_9ad3_8bc4_6867, 0xc6c4_d31e_99b0_aa45],
                &[0xf0ea_667e_6645_37ca, 0x5bca_76e8_0b9d_6cee],
                &[0xa23c_eb0f_db7b_e925],
                &[0x56e5_8f2c_32aa_50f7],
                &[0x7508_5b75_bae0_be41],
                &[0x3c34_4918_f94e_a70e],
            ],
        ),
    ];

    #[test]
    fn operations_are_torchvisions_to_the_bit() {
        let picture = picture();
        for (magnitude, all) in THEIRS {
            for (number, theirs) in all.iter().enumerate() {
                let ours = (0..20).map(|sample| {
                    let mut rng = Rng::new(0, 0, sample);
                    let op = RANGES.operation(number, [magnitude, 31], picture.size(), &mut rng);
                    let plan = Plan::new(picture.size(), op.as_slice(), None);
                    fnv1a64(plan.run(picture.clone()).pixels())
                });
                let ours: BTreeSet<_> = ours.collect();
                assert_eq!(ours, theirs.iter().copied().collect(), "operation {number}, magnitude {magnitude}");
            }
        }
    }
}
