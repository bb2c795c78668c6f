/// `SplitMix64`: a few lines that stay as they are, which no library of generators promises.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Numbers that follow from the seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0..n, evenly enough: the high half of a product.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below 0");
        let product = u128::from(self.next()) * u128::from(n);
        u64::try_from(product >> 64).expect("the high half of 128 bits")
    }

    /// 0.0..1.0
    pub(crate) fn fraction(&mut self) -> f64 {
        let bits = u32::try_from(self.next() >> 32).expect("32 bits");
        f64::from(bits) / f64::from(u32::MAX) * (1.0 - f64::EPSILON)
    }

    /// One of them.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.below(choices.len() as u64);
        &choices[usize::try_from(index).expect("an index")]
    }

    /// One of the choices, each as often of `whole` as it says; else `None`.
    pub(crate) fn share<T: Copy>(&mut self, whole: u64, choices: &[(T, u64)]) -> Option<T> {
        let mut drawn = self.below(whole);
        for (choice, share) in choices {
            match drawn.checked_sub(*share) {
                None => return Some(*choice),
                Some(rest) => drawn = rest,
            }
        }
        None
    }

    /// Around 0 with deviation 1: the sum of twelve even draws, which is near enough here.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.fraction()).sum::<f64>() - 6.0
    }

    /// Around `median`, the wider the greater `sigma`: its mean is `median` x exp(sigma² / 2).
    pub(crate) fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(0);
        assert_eq!([random.next(), random.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn draws_stay_in_their_ranges_and_near_their_means() {
        let mut random = Random::new(7);
        assert!((0..10_000).all(|_| random.below(3) < 3 && (0.0..1.0).contains(&random.fraction())));
        let mean = (0..10_000).map(|_| random.normal()).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05, "{mean}");
        let shared = (0..10_000).filter(|_| random.share(100, &[('a', 10), ('b', 5)]) == Some('b')).count();
        assert!((400..600).contains(&shared), "{shared}");
    }
}
