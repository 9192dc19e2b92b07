//! How a directory is being walked: which of its files will be wanted next.

use std::time::Duration;

use weft_remote::Name;
use weft_store::NodeId;

use crate::Result;
use crate::prefetch::Want;

/// A name of the directory and what it leads to.
pub(crate) type Sibling = (Name, NodeId);

/// The walk of one directory, in the order in which listings give its names.
///
/// Files used in even steps (each, every fourth) are followed in those steps, files used in small uneven steps by all
/// that come next. How many files ahead is worth it grows with the walk, so that a walk that breaks off has never cost
/// more than it was long, and is few where the source is near. A use that goes elsewhere ends
/// the walk; several that follow no order have a small directory fetched as it is (the links of a page).
///
/// Programs that go through a tree treat its directories alike: a walk begins with its first file where the directory
/// that was walked before, beside this one, was walked so ([`Habit`]).
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The file used last.
    last: Option<Name>,
    /// Names from one use to the next.
    step: usize,
    /// How many uses in a row kept to it.
    streak: u32,
    /// Steps are small and uneven: all names are taken.
    uneven: bool,
    /// How long the source took to begin an answer about one of the files.
    pub(crate) latency: Duration,
    /// What was fetched ahead could not be used without asking again: nothing is fetched ahead here.
    pub(crate) in_vain: bool,
    /// How many of those fetched ahead are yet to be used.
    ahead: usize,
    /// The last of those.
    ahead_to: Option<Name>,
    /// Uses that followed no order.
    strays: u32,
    /// It goes by a habit that no use here has borne out yet.
    by_habit: bool,
    /// What is known of the directories in this one.
    below: Option<Box<Below>>,
}

/// How a directory was walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit {
    step: usize,
    uneven: bool,
    streak: u32,
    latency: Duration,
}

/// How the directories in a directory are walked.
#[derive(Debug, Default)]
struct Below {
    /// The walk from one of them to the next.
    directories: Walk,
    /// The shortest time that the source took for a list of one of them.
    nearest: Option<Duration>,
    /// How what is in them was used, in the last of them: at most one for each sort of use.
    habits: Vec<HabitBelow>,
}

/// The habit of whoever walks the directories in a directory.
#[derive(Clone, Copy, Debug)]
struct HabitBelow {
    habit: Habit,
    want: Want,
    /// A walk was begun by it, and none has borne it out since.
    tried: bool,
}

impl Walk {
    /// Whether a file here was used: no habit of elsewhere says more about this directory.
    pub(crate) fn has_begun(&self) -> bool {
        self.last.is_some() || self.strays > 0
    }

    /// How this directory is walked, once that has shown.
    pub(crate) fn habit(&self) -> Option<Habit> {
        let Walk { step, uneven, streak, latency, .. } = *self;
        let shown = !self.by_habit && !self.in_vain && streak >= STREAK_MIN;
        shown.then_some(Habit { step, uneven, streak, latency })
    }

    /// The walk of what is used so: of the files here, or of the directories, each of which is used when it is listed.
    pub(crate) fn of(&mut self, want: Want) -> &mut Walk {
        match want {
            Want::Attributes | Want::Content => self,
            Want::Names => &mut self.below.get_or_insert_default().directories,
        }
    }

    /// A directory in this one was listed, and its source took so long if it was asked. Whether that is far: a source that was
    /// quicker once is busy, and not far.
    pub(crate) fn is_far_below(&mut self, took: Option<Duration>) -> bool {
        let nearest = &mut self.below.get_or_insert_default().nearest;
        *nearest = nearest.iter().copied().chain(took).min();
        nearest.is_some_and(|nearest| nearest >= FAR_FOR_LISTS)
    }

    /// A directory in this one was walked so.
    pub(crate) fn learn_below(&mut self, habit: Habit, want: Want) {
        let known = HabitBelow { habit, want, tried: false };
        let habits = &mut self.below.get_or_insert_default().habits;
        match habits.iter_mut().find(|known| known.want == want) {
            Some(before) => *before = known,
            None => habits.push(known),
        }
    }

    /// The habit by which a walk of a directory in this one begins. One that is not borne out is tried once.
    pub(crate) fn try_below(&mut self, want: Want) -> Option<Habit> {
        let habits = &mut self.below.as_mut()?.habits;
        let place = habits.iter().position(|known| known.want == want)?;
        if std::mem::replace(&mut habits[place].tried, true) {
            habits.swap_remove(place);
            return None;
        }
        Some(habits[place].habit)
    }

    /// Notes a use of the file `name` and returns what to fetch ahead. `habit` is that of the directory before, if this is
    /// the first use here. `following` gives the names after one (from the first on for `None`), at most as many as asked
    /// for.
    pub(crate) fn note(
        &mut self,
        name: &Name,
        habit: Option<Habit>,
        following: impl Fn(Option<&Name>, usize) -> Result<Vec<Sibling>>,
    ) -> Result<Vec<Sibling>> {
        if self.in_vain || self.last.as_ref() == Some(name) {
            return Ok(Vec::new());
        }
        if let Some(habit) = habit.filter(|_| !self.has_begun()) {
            let Habit { step, uneven, streak, latency } = habit;
            let (last, below) = (Some(name.clone()), self.below.take());
            *self = Walk { last, step, uneven, streak, latency, by_habit: true, below, ..Walk::default() };
            return self.extend(name, step, &following);
        }
        let step = self.step_to(name, &following)?;
        let last = self.last.replace(name.clone());
        let Some(step) = step else { return self.stray(last.is_some(), &following) };
        self.go_on(step);
        if self.streak < STREAK_MIN {
            return Ok(Vec::new());
        }
        self.extend(name, step, &following)
    }

    /// How many names it is from the last use to this one; none when it is not a little way on.
    fn step_to(
        &self,
        name: &Name,
        following: &impl Fn(Option<&Name>, usize) -> Result<Vec<Sibling>>,
    ) -> Result<Option<usize>> {
        let Some(last) = self.last.as_ref().filter(|last| *last < name) else { return Ok(None) };
        let place = |names: Vec<Sibling>| names.iter().position(|(next, _)| next == name).map(|place| place + 1);
        // Mostly it is where it is expected: then few names are read.
        let expected = place(following(Some(last), self.step.max(1))?);
        match expected {
            Some(step) => Ok(Some(step)),
            None => Ok(place(following(Some(last), STEP_MAX)?)),
        }
    }

    /// What is known of the directory, without the walk.
    fn begun_anew(&mut self) -> Walk {
        Walk { latency: self.latency, in_vain: self.in_vain, below: self.below.take(), ..Walk::default() }
    }

    fn go_on(&mut self, step: usize) {
        let small = step <= UNEVEN_STEP_MAX;
        let guessed = std::mem::take(&mut self.by_habit);
        if step == self.step || (self.uneven && small) {
            self.streak += 1;
        } else if !guessed && small && self.step <= UNEVEN_STEP_MAX && self.streak > 0 {
            self.streak += 1;
            self.uneven = true;
        } else {
            let last = self.last.take();
            *self = Walk { last, streak: 1, ..self.begun_anew() };
        }
        self.step = step;
    }

    fn extend(
        &mut self,
        name: &Name,
        step: usize,
        following: &impl Fn(Option<&Name>, usize) -> Result<Vec<Sibling>>,
    ) -> Result<Vec<Sibling>> {
        let stride = if self.uneven { 1 } else { step };
        match &self.ahead_to {
            Some(to) if to > name => self.ahead = self.ahead.saturating_sub(step / stride),
            _ => (self.ahead, self.ahead_to) = (0, None),
        }
        let window_max = if self.latency < FAR { WINDOW_MAX_NEAR } else { WINDOW_MAX };
        let window = (self.streak as usize).min(window_max);
        if self.ahead * 2 > window {
            return Ok(Vec::new());
        }
        let from = self.ahead_to.as_ref().unwrap_or(name);
        let names = following(Some(from), window.saturating_sub(self.ahead) * stride)?;
        let chosen: Vec<Sibling> = names.into_iter().skip(stride - 1).step_by(stride).collect();
        if let Some((to, _)) = chosen.last() {
            self.ahead_to = Some(to.clone());
            self.ahead += chosen.len();
        }
        Ok(chosen)
    }

    fn stray(
        &mut self,
        counts: bool,
        following: &impl Fn(Option<&Name>, usize) -> Result<Vec<Sibling>>,
    ) -> Result<Vec<Sibling>> {
        let (last, strays) = (self.last.take(), self.strays + u32::from(counts));
        *self = Walk { last, strays, ..self.begun_anew() };
        if strays != STRAYS_MIN {
            return Ok(Vec::new());
        }
        let all = following(None, SMALL_DIRECTORY_NAMES + 1)?;
        Ok(if all.len() > SMALL_DIRECTORY_NAMES { Vec::new() } else { all })
    }
}

/// Steps of one length in a row (two of them: three files) that make a walk.
const STREAK_MIN: u32 = 2;
/// Longest step.
const STEP_MAX: usize = 16;
/// Longest step of an uneven walk.
const UNEVEN_STEP_MAX: usize = 4;
/// Most files ahead.
const WINDOW_MAX: usize = 24;
/// Most files ahead where answers begin at once: enough to keep everybody at work, and to ask for several at a time.
const WINDOW_MAX_NEAR: usize = 8;
/// A source that takes so long to begin an answer is far.
const FAR: Duration = Duration::from_millis(3);
/// One that takes so long for a list is, where it is always so.
const FAR_FOR_LISTS: Duration = Duration::from_millis(10);
/// Uses in no order after which a small directory is fetched as it is.
const STRAYS_MIN: u32 = 3;
/// Names that a small directory has at most.
const SMALL_DIRECTORY_NAMES: usize = 48;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names 000 to 099.
    fn following(after: Option<&Name>, limit: usize) -> Result<Vec<Sibling>> {
        let number = |name: &Name| name.to_string().parse::<u64>().expect("a number");
        let first = after.map_or(0, |name| number(name) + 1);
        Ok((first..100).take(limit).map(|n| (name(n), NodeId(n))).collect())
    }

    fn name(number: u64) -> Name {
        Name::new(format!("{number:03}")).expect("a good name")
    }

    /// What is fetched ahead when these are used, in order.
    fn ahead_of(used: impl IntoIterator<Item = u64>) -> Vec<u64> {
        ahead_at(Duration::from_millis(20), used)
    }

    fn ahead_at(latency: Duration, used: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut walk = Walk { latency, ..Walk::default() };
        used.into_iter().flat_map(|n| use_of(&mut walk, None, n)).collect()
    }

    /// What is fetched ahead when a file is used.
    fn use_of(walk: &mut Walk, habit: Option<Habit>, n: u64) -> Vec<u64> {
        let fetched = walk.note(&name(n), habit, following).expect("names");
        fetched.into_iter().map(|(_, NodeId(n))| n).collect()
    }

    /// How a directory is walked of which these files were used.
    fn habit_of(used: impl IntoIterator<Item = u64>) -> Option<Habit> {
        let mut walk = Walk { latency: Duration::from_millis(20), ..Walk::default() };
        used.into_iter().for_each(|n| drop(use_of(&mut walk, None, n)));
        walk.habit()
    }

    #[test]
    fn a_walk_in_even_steps_is_followed_in_those_steps() {
        assert_eq!(ahead_of([0, 1]), Vec::<u64>::new());
        assert_eq!(ahead_of([0, 1, 2]), [3, 4]);
        assert_eq!(ahead_of([0, 4, 8]), [12, 16]);
        assert_eq!(ahead_of((0..100).step_by(4)), (12..100).step_by(4).collect::<Vec<_>>());
        assert_eq!(ahead_of(0..100), (3..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_walk_that_breaks_off_has_cost_no_more_than_it_was_long_and_little_where_the_source_is_near() {
        for length in 3..60 {
            let ahead = ahead_of(0..length).len() as u64;
            assert!(ahead - (length - 3).min(ahead) <= length.min(24), "{ahead} for {length}");
        }
        assert_eq!(ahead_at(Duration::ZERO, 0..25), (3..33).collect::<Vec<_>>());
    }

    #[test]
    fn a_directory_is_walked_like_the_one_before_from_its_first_file_on() {
        let (habit, mut walk) = (habit_of((0..100).step_by(4)), Walk::default());
        assert_eq!(use_of(&mut walk, habit, 0), (4..100).step_by(4).collect::<Vec<_>>());
        assert!(walk.habit().is_none(), "it has not shown yet");
        assert_eq!(use_of(&mut walk, None, 4), Vec::<u64>::new(), "each once");
        assert!(walk.habit().is_some());
        assert!(habit_of(0..2).is_none() && habit_of([0, 30, 60, 90]).is_none());
    }

    #[test]
    fn a_directory_that_is_walked_otherwise_costs_one_guess() {
        let (habit, mut walk) = (habit_of(0..5), Walk::default());
        assert_eq!(use_of(&mut walk, habit, 10), [11, 12, 13, 14]);
        assert_eq!(use_of(&mut walk, habit, 13), Vec::<u64>::new());
        assert_eq!(use_of(&mut walk, habit, 16), [19, 22], "as in any walk");
    }

    #[test]
    fn a_source_that_was_quick_once_is_not_far() {
        let (ms, mut walk) = (Duration::from_millis, Walk::default());
        assert!(!walk.is_far_below(None), "it was never asked");
        assert!(walk.is_far_below(Some(ms(20))) && walk.is_far_below(None) && walk.is_far_below(Some(ms(15))));
        assert!(!walk.is_far_below(Some(ms(2))) && !walk.is_far_below(Some(ms(20))) && !walk.is_far_below(None));
    }

    #[test]
    fn a_habit_that_is_not_borne_out_is_tried_once() {
        let (habit, mut above) = (habit_of(0..5).expect("a walk"), Walk::default());
        assert!(above.try_below(Want::Content).is_none());
        for _ in 0..3 {
            above.learn_below(habit, Want::Content);
            assert!(above.try_below(Want::Content).is_some());
        }
        assert!(above.try_below(Want::Content).is_none());
        assert!(above.try_below(Want::Content).is_none());
        above.learn_below(habit, Want::Content);
        assert!(above.try_below(Want::Attributes).is_none(), "nobody has looked at sizes alone");
        assert!(above.try_below(Want::Content).is_some(), "it has shown again");
        use_of(&mut above, None, 1);
        use_of(&mut above, None, 50);
        above.learn_below(habit, Want::Content);
        use_of(&mut above, None, 3);
        assert!(above.try_below(Want::Content).is_some(), "whatever becomes of the walk of this one");
    }

    #[test]
    fn a_walk_in_small_uneven_steps_is_followed_by_all_and_none_twice() {
        let used = [0, 2, 3, 6, 7, 9, 12, 13];
        let fetched = ahead_of(used);
        let distinct: BTreeSet<u64> = fetched.iter().copied().collect();
        assert_eq!(distinct.len(), fetched.len(), "{fetched:?}");
        assert!((14..17).all(|n| distinct.contains(&n)), "{fetched:?}");
    }

    #[test]
    fn a_walk_backwards_or_in_leaps_fetches_nothing() {
        assert_eq!(ahead_of((0..100).rev()), Vec::<u64>::new());
        assert_eq!(ahead_of([0, 30, 60, 90, 1, 31, 61, 91]), Vec::<u64>::new());
        assert_eq!(ahead_of([5, 5, 5, 5]), Vec::<u64>::new());
    }

    #[test]
    fn uses_in_no_order_have_a_small_directory_fetched_and_a_large_one_not() {
        let few = |after: Option<&Name>, limit: usize| {
            let names = following(after, limit)?;
            Ok(names.into_iter().filter(|(_, NodeId(n))| *n < 40).collect())
        };
        let mut walk = Walk::default();
        let mut fetched = Vec::new();
        for n in [30, 10, 35, 2] {
            fetched.extend(walk.note(&name(n), None, few).expect("names"));
        }
        assert_eq!(fetched.len(), 40);
        assert_eq!(ahead_of([30, 10, 35, 2, 80, 7]), Vec::<u64>::new());
    }
}
