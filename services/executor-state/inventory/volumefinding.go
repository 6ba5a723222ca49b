package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/model"
)

// awayAfter is how long a wanted volume may be away, and stuckAfter how long an executor may
// take to destroy a volume, before that is a finding. A reboot takes less.
const (
	awayAfter  = 10 * time.Minute
	stuckAfter = 10 * time.Minute
)

// shownVolumes is the maximum number of volumes that a finding names.
const shownVolumes = 5

// volumeFindings returns the findings about volumes, by kind and in order of the volume or
// executor.
func (c *Core) volumeFindings(now time.Time) []Finding {
	var away, lost, stuck []Finding
	for _, v := range c.volumes {
		switch {
		case v.State == model.VolumeLost:
			lost = append(lost, Finding{
				Kind: FindingVolumeLost, Object: v.object(), Since: v.Since,
				Message: fmt.Sprintf("executor %s no longer lists volume %s", c.homeName(v), v.ID),
				Action:  "Nothing starts on an empty directory. Put the disk back, or abandon the volume to start with a new one.",
			})
		case v.State == model.VolumeDestroying && now.Sub(v.Since) >= stuckAfter:
			stuck = append(stuck, Finding{
				Kind: FindingVolumeStuck, Object: v.object(), Since: v.Since,
				Message: fmt.Sprintf("executor %s has not confirmed that it destroyed volume %s", c.homeName(v), v.ID),
				Action:  "Berth repeats the request until the executor confirms. Check the executor and its agent. If the executor is LOST for good, abandon the volume.",
			})
		case v.State.Current() && v.UnwantedSince.IsZero():
			h := c.home(v.Volume)
			if h == nil || h.state == model.ExecutorReady || now.Sub(h.stateSince()) < awayAfter {
				continue
			}
			away = append(away, Finding{
				Kind: FindingVolumeAway, Object: v.object(), Since: h.stateSince(),
				Message: fmt.Sprintf("volume %s is on executor %s, which is %s", v.ID, h.ID, h.shown()),
				Action:  "The worker index waits for the executor, or is replaced if onLoss is REPLACE and the executor is LOST. Repair the executor, or abandon the volume if it is lost for good.",
			})
		}
	}
	inOrder := func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	}
	for _, list := range [][]Finding{away, lost, stuck} {
		slices.SortFunc(list, inOrder)
	}
	misplaced, unknown := c.unrecordedVolumes()
	return slices.Concat(away, lost, misplaced, unknown, stuck)
}

// object names the worker index of a volume: job/stage/3.
func (v *volume) object() string { return fmt.Sprintf("%s/%s/%d", v.stage.Job, v.stage.Stage, v.Index) }

// homeName returns the ID of a volume's home.
func (c *Core) homeName(v *volume) string {
	if h := c.home(v.Volume); h != nil {
		return h.ID
	}
	return "unknown"
}

// unrecordedVolumes returns the findings about volumes that executors list and no record
// assigns to them, by executor. A misplaced volume has its home elsewhere: it came with a
// disk, and may be the only copy of the data. No record names an unknown volume. Records
// precede volumes and outlive them, so it belongs to a lost history. Berth destroys neither.
func (c *Core) unrecordedVolumes() (misplaced, unknown []Finding) {
	for _, executor := range slices.Sorted(maps.Keys(c.lists)) {
		h := c.hosts[executor]
		reported := c.listOf(h)
		if reported == nil {
			continue
		}
		var elsewhere, nowhere []string
		for _, id := range slices.Sorted(maps.Keys(reported.ids)) {
			switch v := c.volumes[id]; {
			case v == nil && len(c.quarantined.volumes) > 0: // an unreadable record may name it
			case v == nil:
				nowhere = append(nowhere, id)
			case v.Ordinal != h.Record.Ordinal:
				elsewhere = append(elsewhere, fmt.Sprintf("%s of %s", id, c.homeName(v)))
			}
		}
		if len(elsewhere) > 0 {
			misplaced = append(misplaced, Finding{
				Kind: FindingVolumeMisplaced, Object: executor, Since: reported.since,
				Message: "lists volumes of other executors: " + firstOf(elsewhere),
				Action:  "A volume moves here once its executor is LOST. Until then its directory may be the only copy of its data: do not remove it.",
			})
		}
		if len(nowhere) > 0 {
			unknown = append(unknown, Finding{
				Kind: FindingVolumeUnknown, Object: executor, Since: reported.since,
				Message: "lists volumes that no record names: " + firstOf(nowhere),
				Action:  "Berth never destroys them by itself. Find out where they come from, for example an older backup of etcd or another cluster. To destroy one, delete it with the ID of the executor.",
			})
		}
	}
	return misplaced, unknown
}

// firstOf returns the first shownVolumes of a list, and how many more there are.
func firstOf(list []string) string {
	text := strings.Join(list[:min(len(list), shownVolumes)], ", ")
	if more := len(list) - shownVolumes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
