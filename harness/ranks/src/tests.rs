use crate::{Ranks, RanksError, local};
use std::thread;

/// Runs `work` on a thread per rank, and returns the results.
fn together<T: Send>(size: usize, work: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = local(size).unwrap().into_iter().map(|r| scope.spawn(move || work(r))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn alone_everything_is_as_it_was() {
    let ranks = Ranks::alone();
    assert_eq!((ranks.rank(), ranks.size(), ranks.is_first()), (0, 1, true));
    assert_eq!(ranks.mean(vec![[1.5, 2.0]]).wait(), Ok(vec![[1.5, 2.0]]));
    assert_eq!(ranks.gather(vec![1.5, 2.0]), Ok(vec![1.5, 2.0]));
    assert_eq!(ranks.broadcast(vec![7]), Ok(vec![7]));
    assert_eq!(ranks.any(false), Ok(false));
    assert_eq!(ranks.any(true), Ok(true));
}

#[test]
fn three_ranks_average_gather_and_broadcast() {
    let given = together(3, |ranks| {
        let rank = ranks.rank() as f32;
        let [mean, late] = [vec![vec![rank, 1.0], vec![3.0]], vec![vec![10.0 * rank]]].map(|parts| ranks.mean(parts));
        let gathered = ranks.gather(vec![rank, -rank]).unwrap();
        let said = ranks.broadcast(vec![ranks.rank() as u8 + 5; 3 - ranks.rank()]).unwrap();
        let any = [ranks.any(ranks.rank() == 2).unwrap(), ranks.any(false).unwrap()];
        ranks.meet().unwrap();
        (mean.wait().unwrap(), late.wait().unwrap(), gathered, said, any)
    });
    let each = (
        vec![vec![1.0, 1.0], vec![3.0]],
        vec![vec![10.0]],
        vec![0.0, -0.0, 1.0, -1.0, 2.0, -2.0],
        vec![5; 3],
        [true, false],
    );
    assert_eq!(given, vec![each; 3]);
}

#[test]
fn who_waits_for_a_rank_that_has_gone_hears_of_it() {
    let given = together(3, |ranks| match ranks.rank() {
        1 => Err(RanksError::Gone),
        _ => ranks.mean(vec![[1.0]]).wait(),
    });
    assert_eq!(given, vec![Err(RanksError::Gone); 3]);
}

#[test]
fn ranks_that_ask_for_different_things_are_told() {
    let lengths = together(2, |ranks| ranks.mean(vec![vec![1.0; 1 + ranks.rank()]]).wait());
    assert!(lengths.iter().all(|result| matches!(result, Err(RanksError::Apart(_)))), "{lengths:?}");
    let kinds = together(2, |ranks| match ranks.rank() {
        0 => ranks.gather(vec![1.0]),
        _ => ranks.mean(vec![vec![1.0]]).wait().map(|parts| parts.concat()),
    });
    assert!(kinds.iter().all(|result| matches!(result, Err(RanksError::Apart(_)))), "{kinds:?}");
}
