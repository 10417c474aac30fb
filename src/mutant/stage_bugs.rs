//! The deliberate bugs of stages: the file of each, its name, and what it breaks.
//!
//! Owns: a macro that adds them to the list of `bugs`. May import nothing from the crate.

macro_rules! with_those_of_stages {
    ($list:ident; $($others:tt)*) => {
        $list! {
            $($others)*
            "pair/claims.rs" {
                FlipOverStage "flip-over-stage": "a write flips into a slot that a stage claims",
                StageUnderView "stage-under-view": "a stage claims slots of a page that a view pins",
                StageOverStage "stage-over-stage": "a stage claims slots that another stage claims",
                StageNotClaimed "stage-not-claimed": "a stage does not claim its slots",
            }
            "engine/stage.rs" {
                StageNotAllocated "stage-not-allocated": "the slots of a stage are stored to without being allocated",
                StageNotGivenBack "stage-not-given-back": "a dropped stage keeps its claims",
                StageFillNotDrained "stage-fill-not-drained": "a fill of a stage does not wait for its stores",
                StageNotFlushed "stage-not-flushed": "bytes that a caller has stored to slots are not flushed",
            }
            "engine/write/staged.rs" {
                StagedFlipsClaimed "staged-flips-claimed": "a commit of stages flips into claimed slots",
            }
            "engine/commit/redo.rs" {
                RedoForgetsPlaced "redo-forgets-placed": "a redo record lacks the slices that a stage has filled",
            }
            "engine/sums.rs" {
                StagedSumOfOldBytes "staged-sum-of-old-bytes": "the sum of a page has the old bytes of what a stage has filled",
            }
            "engine/deploy/region.rs" {
                DeployOverStage "deploy-over-stage": "a deployment copies to slots that a stage claims",
            }
            "engine/deploy/punch.rs" {
                PunchStagedSlots "punch-staged-slots": "slots that a stage claims are given back to the file system",
            }
            "engine/deploy/pin.rs" {
                ViewOverStage "view-over-stage": "a view pins a page with slots that a stage claims",
                FastViewOverStage "fast-view-over-stage": "a view without a lock pins such a page",
            }
            "engine/resize/mod.rs" {
                ShrinkUnderStage "shrink-under-stage": "a shrink truncates slots that a stage claims",
            }
            "api/stage/mod.rs" {
                StageKeepsOldFill "stage-keeps-old-fill": "what a fill has not reached stays filled",
                StageEndNotChecked "stage-end-not-checked": "a fill goes past the end of its stage",
                EarlierStageWins "earlier-stage-wins": "of two stages that overlap the earlier one wins",
            }
            "api/stage/layers.rs" {
                PartTakenForSlice "part-taken-for-slice": "a slice that is filled in part is committed as a whole",
            }
        }
    };
}

pub(super) use with_those_of_stages;
