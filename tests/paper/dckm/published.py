"""NMI and ARI as printed in table 1 of the paper, and those noted from a prototype of ours."""

PUBLISHED = {
    ("dslr", "PCA+KM"): (0.466, 0.1755),
    ("dslr", "Drop+KM"): (0.4526, 0.1659),
    ("dslr", "Dec+KM, random partition"): (0.3446, 0.1736),
    ("dslr", "k-means"): (0.4523, 0.1566),
    ("dslr", "DCKM"): (0.4739, 0.2583),
    ("webcam", "PCA+KM"): (0.302, 0.062),
    ("webcam", "Drop+KM"): (0.3333, 0.1007),
    ("webcam", "Dec+KM, random partition"): (0.2971, 0.1404),
    ("webcam", "k-means"): (0.3333, 0.1007),
    ("webcam", "DCKM"): (0.4355, 0.243),
    ("OH1", "PCA+KM"): (0.3038, 0.1223),
    ("OH1", "Drop+KM"): (0.2986, 0.1141),
    ("OH1", "Dec+KM, random partition"): (0.2625, 0.1371),
    ("OH1", "k-means"): (0.3068, 0.1262),
    ("OH1", "DCKM"): (0.3594, 0.1926),
}
NOTED = {"dslr": (0.454, 0.219), "webcam": (0.448, 0.222), "OH1": (0.364, 0.203)}
