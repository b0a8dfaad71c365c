// A browser opens at most six connections to a server, for all its windows together. A stream keeps one, so streams need
// one of a few slots, which are locks that all windows share; a window that is closed gives its slot back by itself.

/**
 * Take one of the slots of a kind. Gives a function that gives it back, or null if all are taken.
 *
 * With `isUrgent`, a slot is taken away from another window if need be; `onLost` is called in the one that loses it.
 */
export async function takeSlot(kind, onLost, isUrgent = false) {
  if (!navigator.locks) return () => {}; // only pages with TLS or on this computer have locks
  const names = Array.from({ length: SLOTS[kind] }, (_, n) => `genus-studio-${kind}-${n}`);
  for (const name of names) {
    const release = await hold(name, { ifAvailable: true }, onLost);
    if (release) return release;
  }
  return isUrgent ? hold(names[Math.floor(Math.random() * names.length)], { steal: true }, onLost) : null;
}

const SLOTS = { tables: 3, view: 2 };

function hold(name, options, onLost) {
  return new Promise((resolve) => {
    let isReleased = false;
    navigator.locks.request(name, options, (lock) => {
      if (!lock) return resolve(null);
      return new Promise((done) => resolve(() => { isReleased = true; done(); }));
    }).catch(() => { if (!isReleased) onLost(); });
  });
}
